"""The validating webhook for IPPool and CIDRPool."""
