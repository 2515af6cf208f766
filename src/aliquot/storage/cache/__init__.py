"""The node cache: files of datasets on local disk, whole and verified, within bounded bytes."""
