{ environment.etc."which".text = "laptop"; }
