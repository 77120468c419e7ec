value: { x = value; }
