package scenario

import "time"

// Watch follows a run as it happens. Each of its functions may be nil.
type Watch struct {
	// Try is called before the first step of a try, and what it returns after the last one.
	Try func(Attempt) (over func())
	// Part is called when a part was made as often as it had to be, or could not be made. Its
	// history is relative to the folder.
	Part func(folder string, p PartResult)
}

// Attempt is where one try of a part records what happens, while it does.
type Attempt struct {
	Item  int64
	Start time.Time
	// Files are its history, and after it the records of its replicas, which have what happened
	// before Start, too.
	Files []string
}

func (w Watch) try(s *Environment, file string) (over func()) {
	if w.Try == nil {
		return func() {}
	}
	a := Attempt{Item: s.Item, Start: s.Start, Files: []string{file}}
	if s.Cluster != nil {
		for _, replica := range s.Cluster.Replicas {
			if record := replica.History(); record != "" {
				a.Files = append(a.Files, record)
			}
		}
	}
	return w.Try(a)
}

func (w Watch) part(folder string, p PartResult) {
	if w.Part != nil {
		w.Part(folder, p)
	}
}
