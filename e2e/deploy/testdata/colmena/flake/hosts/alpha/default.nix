{ inputs, ... }:
{
  environment.etc."which".text = "alpha, from ${if inputs ? nixpkgs then "a nixpkgs" else "nowhere"}";
}
