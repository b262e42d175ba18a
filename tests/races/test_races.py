"""Being written by another person right now: leave this file to them and go on with the rest of your list."""
