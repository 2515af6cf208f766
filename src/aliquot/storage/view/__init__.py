"""Views: a sandbox's datasets as ordinary read-only directories, by FUSE spoken on a descriptor of `/dev/fuse`."""
