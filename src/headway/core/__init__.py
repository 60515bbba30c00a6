"""The basis of all packages of headway, which imports none of them."""
