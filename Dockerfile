# The cloud controller managers and the programs of address management (/ipam-controller, /ipam-node, /nv-ipam), nothing
# else. `make docker-build` assembles the two archives before it builds this: Python with the pinned packages, and our
# own modules and programs (tools/rootfs.py).
FROM scratch
ADD build/rootfs/base.tar /
ADD build/rootfs/app.tar /
ENV HOME=/home/nonroot \
    PATH=/usr/bin \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt \
    PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
# The manager of whichever cloud `--cloud-provider` names, so that the image's arguments are the manager's flags.
ENTRYPOINT ["/usr/bin/cloud-controller-manager"]
