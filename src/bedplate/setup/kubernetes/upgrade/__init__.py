"""Upgrading a cluster: `planning` decides, `findings` judges, `seeing` looks, `stages` does."""
