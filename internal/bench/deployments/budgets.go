package deployments

// A budget is the highest allowed value of a metric.
type budget struct {
	metric  metric
	limit   float64
	perNode bool // the limit counts for each node; the metric is the sum of all nodes
}

// computeLimit returns the highest allowed value with this number of nodes and busy loops. With busy loops, the wall
// time may be twice as long.
func (b budget) computeLimit(nodes, load int) float64 {
	limit := b.limit
	if b.perNode {
		limit *= float64(nodes)
	}
	if b.metric == wall && load > 0 {
		limit *= 2
	}
	return limit
}

// findBudget returns the limit of a metric in a scenario, if it has one.
func (s scenario) findBudget(m metric, nodes, load int) (limit float64, ok bool) {
	for _, b := range s.budgets {
		if b.metric == m {
			return b.computeLimit(nodes, load), true
		}
	}
	return 0, false
}

// countExceeded returns how many budgets of the scenario the figures exceed. A metric that was not measured exceeds
// its budget: a check that could not be made has not passed.
func (s scenario) countExceeded(f figures, nodes, load int) int {
	exceeded := 0
	for _, b := range s.budgets {
		if v, ok := f[b.metric]; !ok || v > b.computeLimit(nodes, load) {
			exceeded++
		}
	}
	return exceeded
}
