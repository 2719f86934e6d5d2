"""What protocols stand on: parts that many of them share, each replaceable by another of its kind."""
