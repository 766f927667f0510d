"""From the words of a command to one resolved configuration, and from that to objects."""
