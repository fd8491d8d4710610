package state

// DeadLetterPolicy has a job's runs leave dead letters: what ended as failed,
// timed_out or lost is kept aside, to be looked at and to be run again.
type DeadLetterPolicy struct {
	// Keep is how many are kept; of more the oldest are dropped. 0 means
	// DefaultDeadLetters.
	Keep int
}

// DefaultDeadLetters is how many dead letters a job keeps.
const DefaultDeadLetters = 1000

// DeadLettersKept is how many dead letters of the job are kept; 0: its runs leave
// none.
func (s *JobSpec) DeadLettersKept() int {
	switch {
	case s.DeadLetter == nil:
		return 0
	case s.DeadLetter.Keep == 0:
		return DefaultDeadLetters
	}
	return s.DeadLetter.Keep
}

// Dead tells whether the verdict is one of those that leave a dead letter, where
// their job keeps them.
func (s RunState) Dead() bool { return s == StateFailed || s == StateTimedOut || s == StateLost }
