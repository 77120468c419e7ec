package nixeval

import "encoding/json"

// TargetHosts are the hosts of deployment.targetHost, in the order in which they are tried. They are nil if the
// option is null. The option, and the JSON of this type, is null, a string or a list of strings.
type TargetHosts []string

// UnmarshalJSON decodes the value of the option.
func (t *TargetHosts) UnmarshalJSON(data []byte) error {
	var one *string
	if err := json.Unmarshal(data, &one); err != nil {
		return json.Unmarshal(data, (*[]string)(t))
	}
	*t = nil
	if one != nil {
		*t = TargetHosts{*one}
	}
	return nil
}

// MarshalJSON encodes one host as a string.
func (t TargetHosts) MarshalJSON() ([]byte, error) {
	switch len(t) {
	case 0:
		return []byte("null"), nil
	case 1:
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}
