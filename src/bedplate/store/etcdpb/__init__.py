"""Messages of etcd's v3 API, made from `proto/etcd/bedplate_etcd.proto` by `proto/etcd/generate`, never by hand."""
