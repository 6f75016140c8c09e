"""How each command of the table is answered. Shows through reads, changes through flows; holds no rule."""
