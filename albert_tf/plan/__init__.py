"""Estimates what a training run costs and whether it fits, before renting a machine."""
