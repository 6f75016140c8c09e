"""The pages: each a frozen value, made from reads, and the template that shows it. Holds no rule."""
