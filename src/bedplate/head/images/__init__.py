"""Software images: directory trees on the head node, and how they come to nodes and back.

    imaging         which node gets which tree in which way, what is refused, what becomes of a transfer
    trees           what is an image, who has it, and what is done with it as a whole
    serving         rsync at this end of a transfer
    repositories    where an image's Kubernetes packages come from, and the step to the next minor version
    disk            folders that change places or are removed in one step; commands; space that must stay

What a node does about it is in `agent.images`, what neither of them touches in `api.images`.
"""
