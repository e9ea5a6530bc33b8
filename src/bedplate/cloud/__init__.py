"""The cloud controller manager: provider interface, controllers, providers and the process around them."""
