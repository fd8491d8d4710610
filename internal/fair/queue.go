package fair

// Classes is how many classes there are; 0 comes first.
const Classes = 4

// MaxWeight is the greatest weight of a flow; the least is 1.
const MaxWeight = 100

// scale is what one item of a flow of weight 1 costs it. That of the greatest weight is
// exact to a hundredth of a percent, and a flow can be served 2^40 times.
const scale = 1 << 22

// Flow names whose an item is, and how it is to be treated.
type Flow[K comparable] struct {
	Key K
	// Class is 0 to Classes-1; others count as the nearest.
	Class int
	// Weight is 1 to MaxWeight; others count as the nearest.
	Weight int
	// Lane names what the flow's items need; empty: nothing.
	Lane string
}

func (f *Flow[K]) class() int  { return min(max(f.Class, 0), Classes-1) }
func (f *Flow[K]) cost() int64 { return scale / int64(min(max(f.Weight, 1), MaxWeight)) }

// Queue is what waits. The zero Queue is empty. Push, Pop and Shed cost O(log f + l), with
// f flows and l lanes of a class.
type Queue[K comparable, T any] struct {
	classes [Classes]class[K, T]
	n       int
	pushed  uint64
}

// class is the flows of one class.
type class[K comparable, T any] struct {
	// now is the virtual time: the latest at which an item was taken.
	now   int64
	flows map[flowKey[K]]*flow[K, T]
	lanes []*lane[K, T]
	busy  int // flows that wait
	most  int // flows before it is looked which can be forgotten
}

type flowKey[K comparable] struct {
	key  K
	lane string
}

// flow is one flow of a class and a lane.
type flow[K comparable, T any] struct {
	lane *lane[K, T]
	// start is when its first item is due, next when one that comes is at the earliest.
	start, next int64
	// since orders flows that are due at once: by whose first item came first.
	since uint64
	items []item[T]
	head  int
	at    int // in the lane's heap
	cost  int64
}

type item[T any] struct {
	value T
	since uint64
}

func (f *flow[K, T]) len() int { return len(f.items) - f.head }

// lane is a heap of the flows that wait in it.
type lane[K comparable, T any] struct {
	name string
	heap []*flow[K, T]
}

// Len is how many items wait.
func (q *Queue[K, T]) Len() int { return q.n }

// Push lets an item wait.
func (q *Queue[K, T]) Push(of Flow[K], value T) {
	c := &q.classes[of.class()]
	f := c.flow(of)
	q.pushed++
	q.n++
	f.cost = of.cost()
	f.items = append(f.items, item[T]{value, q.pushed})
	if f.len() == 1 {
		f.start, f.since = max(c.now, f.next), q.pushed
		c.busy++
		f.lane.add(f)
	}
}

// flow finds a flow, or makes it.
func (c *class[K, T]) flow(of Flow[K]) *flow[K, T] {
	k := flowKey[K]{of.Key, of.Lane}
	if f := c.flows[k]; f != nil {
		return f
	}
	if c.flows == nil {
		c.flows = make(map[flowKey[K]]*flow[K, T])
	}
	if len(c.flows) >= c.most {
		c.forget()
	}
	f := &flow[K, T]{lane: c.lane(of.Lane)}
	c.flows[k] = f
	return f
}

// forget drops the flows of which it does not matter what they had. It is done when they
// have doubled, so it costs each of them O(1).
func (c *class[K, T]) forget() {
	for k, f := range c.flows {
		if f.len() == 0 && f.next <= c.now {
			delete(c.flows, k)
		}
	}
	c.most = 2*len(c.flows) + 1024
}

func (c *class[K, T]) lane(name string) *lane[K, T] {
	for _, l := range c.lanes {
		if l.name == name {
			return l
		}
	}
	l := &lane[K, T]{name: name}
	c.lanes = append(c.lanes, l)
	return l
}

// Pop takes the item whose turn it is, of those in lanes for which may answers true. A
// nil may lets all pass. ok is false where there is none.
func (q *Queue[K, T]) Pop(may func(lane string) bool) (value T, ok bool) {
	for i := range q.classes {
		c := &q.classes[i]
		if c.busy == 0 {
			continue
		}
		var best *flow[K, T]
		for _, l := range c.lanes {
			if len(l.heap) > 0 && (best == nil || l.heap[0].before(best)) && (may == nil || may(l.name)) {
				best = l.heap[0]
			}
		}
		if best == nil {
			continue
		}
		value = best.items[best.head].value
		c.now = max(c.now, best.start)
		best.next = best.start + best.cost
		best.drop()
		if best.len() > 0 {
			best.start, best.since = best.next, best.items[best.head].since
			best.lane.fix(best.at)
		} else {
			c.busy--
			best.lane.remove(best)
		}
		q.took(1)
		return value, true
	}
	return value, false
}

// Return takes back what Pop has charged a flow for an item that came to nothing.
func (q *Queue[K, T]) Return(of Flow[K]) {
	c := &q.classes[of.class()]
	f := c.flows[flowKey[K]{of.Key, of.Lane}]
	if f == nil {
		return // all is forgotten
	}
	f.next -= f.cost
	if f.len() > 0 {
		f.start -= f.cost
		f.lane.fix(f.at)
	}
}

// Shed takes an item whose turn comes late: one of the lowest class, and of a flow there
// the one that came last. ok is false where nothing waits.
func (q *Queue[K, T]) Shed() (value T, ok bool) {
	for i := Classes - 1; i >= 0; i-- {
		c := &q.classes[i]
		for _, l := range c.lanes {
			if len(l.heap) == 0 {
				continue
			}
			f := l.heap[len(l.heap)-1]
			last := len(f.items) - 1
			value = f.items[last].value
			f.items[last] = item[T]{}
			f.items = f.items[:last]
			if f.len() == 0 {
				c.busy--
				l.remove(f)
			}
			q.took(1)
			return value, true
		}
	}
	return value, false
}

// took counts items that are gone. When none is left all is forgotten.
func (q *Queue[K, T]) took(n int) {
	if q.n -= n; q.n == 0 {
		for i := range q.classes {
			q.classes[i] = class[K, T]{}
		}
	}
}

func (f *flow[K, T]) drop() {
	f.items[f.head] = item[T]{}
	f.head++
	if f.head >= 64 && f.head*2 >= len(f.items) {
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
	}
}

func (f *flow[K, T]) before(o *flow[K, T]) bool {
	return f.start < o.start || f.start == o.start && f.since < o.since
}

func (l *lane[K, T]) add(f *flow[K, T]) {
	f.at = len(l.heap)
	l.heap = append(l.heap, f)
	l.up(f.at)
}

func (l *lane[K, T]) remove(f *flow[K, T]) {
	at, last := f.at, len(l.heap)-1
	l.swap(at, last)
	l.heap[last] = nil
	l.heap = l.heap[:last]
	if at < last {
		l.fix(at)
	}
}

func (l *lane[K, T]) fix(i int) {
	if !l.down(i) {
		l.up(i)
	}
}

func (l *lane[K, T]) swap(i, j int) {
	l.heap[i], l.heap[j] = l.heap[j], l.heap[i]
	l.heap[i].at, l.heap[j].at = i, j
}

func (l *lane[K, T]) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !l.heap[i].before(l.heap[parent]) {
			return
		}
		l.swap(i, parent)
		i = parent
	}
}

func (l *lane[K, T]) down(i int) (moved bool) {
	for {
		child := 2*i + 1
		if child >= len(l.heap) {
			return moved
		}
		if right := child + 1; right < len(l.heap) && l.heap[right].before(l.heap[child]) {
			child = right
		}
		if !l.heap[child].before(l.heap[i]) {
			return moved
		}
		l.swap(i, child)
		i, moved = child, true
	}
}
