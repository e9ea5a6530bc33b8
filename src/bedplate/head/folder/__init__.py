"""The data folder of a head: its layout and lock, its creation, certificates, backups and administration."""
