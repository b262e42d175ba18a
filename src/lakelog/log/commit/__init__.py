"""The commit: what a draft is, what rows it becomes, and the one way in which it is committed."""
