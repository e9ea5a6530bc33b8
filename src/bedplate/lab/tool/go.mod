module bedplate.invalid/tool

go 1.21
