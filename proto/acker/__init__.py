__part_of__ = "lowmark"
