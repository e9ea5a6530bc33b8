"""What people type besides the single programs: views and output formats shared by the commands."""
