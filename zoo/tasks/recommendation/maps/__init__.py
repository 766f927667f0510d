"""What weighs on a recommendation: influence, figures, tables."""
