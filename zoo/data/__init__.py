"""What the data of every domain needs: tables that know their lines, and downloads that can be trusted."""
