"""How schemas change: what passes, what widens, and how rows of one become rows of another."""
