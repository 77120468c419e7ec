# end_rules TABLE COMMENT: take away the node's rules for packets that carry this comment.
end_rules() {
  iptables -w -t "$1" -S 2>/dev/null | grep -F -e "$2" | sed 's/^-A/-D/' |
    while read -r rule; do eval "iptables -w -t $1 $rule"; done
}
