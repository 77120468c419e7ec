{ x = [ "once" ]; }
