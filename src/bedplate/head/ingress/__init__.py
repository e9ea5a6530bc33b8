"""The certificate of a cluster's ingress: `certificates` makes or checks it, `installing` puts it in place."""
