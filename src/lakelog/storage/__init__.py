"""Where tables lie, and their files, on disks and in object stores: names, writes that reach the disk, locations."""
