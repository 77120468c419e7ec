# delete_rules TABLE COMMENT: delete the node's iptables rules that have exactly this comment. The words of a rule become
# arguments of iptables and are never evaluated by the shell. Apart from the comment, they contain no spaces and no quotes.
# iptables prints the comment in quotes if it contains spaces.
delete_rules() {
  local rule quote option before after
  iptables -w -t "$1" -S 2>/dev/null | while read -r rule; do
    for quote in '' '"'; do
      option=" --comment $quote$2$quote "
      [[ $rule == "-A "*"$option"* ]] || continue
      read -r -a before <<<"${rule%%"$option"*}"
      read -r -a after <<<"${rule#*"$option"}"
      iptables -w -t "$1" -D "${before[@]:1}" --comment "$2" "${after[@]}" || : # iptables prints the reason
    done
  done
}
