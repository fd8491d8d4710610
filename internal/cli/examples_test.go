package cli

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/leaderd/leaderd/internal/config"
	"github.com/leaderd/leaderd/planner/schedule"
	"github.com/leaderd/leaderd/state"
	"github.com/leaderd/leaderd/state/codec"
)

// Every example is a job that the server takes, under the name of its file.
func TestExamplesAreValid(t *testing.T) {
	checks := state.ScheduleChecks{
		Zone: func(zone string) error {
			_, err := schedule.Parse("@hourly", schedule.Options{Zone: zone})
			return err
		},
		Schedule: func(text, zone string) error {
			_, err := schedule.Parse(text, schedule.Options{Zone: zone})
			return err
		},
	}
	jobs, err := sampleJobs(config.Default().OpsListen)
	require.NoError(t, err)
	require.NotEmpty(t, jobs)
	for _, j := range jobs {
		_, name := splitJob(j.job.GetName())
		require.Equal(t, "examples/jobs/"+name+".yaml: document 1", j.where)
		spec := codec.SpecFromProto(j.job.GetSpec())
		require.NoError(t, spec.Validate(checks), j.where)
		require.NotEmpty(t, spec.Description, j.where)
	}
}
