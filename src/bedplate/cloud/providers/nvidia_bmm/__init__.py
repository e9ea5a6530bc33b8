"""The provider `nvidia-bmm`: machines of NVIDIA Bare Metal Manager as nodes."""
