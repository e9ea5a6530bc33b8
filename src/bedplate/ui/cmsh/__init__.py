"""The management shell: its language, the place one stands at, commands, and what they print."""
