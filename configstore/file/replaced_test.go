package file

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

// TestWhatProgramsDoToADirectory is a table of what editors, git, mounts and scripts do. Whatever
// it is, the change is seen without waiting for a look at every file, nothing is taken away
// meanwhile, and the next change is seen, too. In each script $1 is a new east.yaml; the directory
// is app/config, below the one that the script runs in, and has east.yaml and west.yaml.
func TestWhatProgramsDoToADirectory(t *testing.T) {
	for _, c := range []struct{ name, before, script string }{
		{name: "an editor that writes in place", script: `cat $1 > app/config/east.yaml`},
		{name: "an editor that empties the file first", script: `: > app/config/east.yaml; sleep 0.7; cat $1 > app/config/east.yaml`},
		{name: "an editor that keeps the old file (vim, emacs)", script: `cd app/config; mv east.yaml east.yaml~; cat $1 > east.yaml; rm east.yaml~`},
		{name: "an editor that renames (sed -i)", script: `cp $1 app/config/sedXYZ; mv app/config/sedXYZ app/config/east.yaml`},
		{name: "a script that removes and writes", script: `rm app/config/east.yaml; sleep 0.2; cat $1 > app/config/east.yaml`},
		{name: "a script that removes every file and writes", script: `rm app/config/*.yaml; sleep 0.7; echo "$W" > app/config/west.yaml; cat $1 > app/config/east.yaml`},
		{name: "tar", script: `mkdir x; cp $1 x/east.yaml; tar c -C x . | tar x --unlink-first -C app/config`},
		{name: "a file that is renamed", script: `cat $1 > app/config/east.yaml; sleep 0.1; mv app/config/west.yaml app/config/a.yaml`},
		{name: "a file that is cut in two", before: `cat app/config/west.yaml > all; echo --- >> all; cat app/config/east.yaml >> all; mv all app/config/all.yaml; rm app/config/[ew]*.yaml`,
			script: `cat $1 > app/config/east.yaml; echo "$W" > app/config/west.yaml; rm app/config/all.yaml`},
		{name: "removed and made anew", script: `rm -rf app/config; mkdir app/config; cp $1 app/config/east.yaml; echo "$W" > app/config/west.yaml`},
		{name: "removed and made anew, slowly", script: `rm -rf app/config; sleep 0.1; mkdir app/config; sleep 0.1; cp $1 app/config/east.yaml; sleep 0.1; echo "$W" > app/config/west.yaml`},
		{name: "removed, and away for a while", script: `cp app/config/west.yaml .; rm -rf app/config; sleep 1; mkdir app/config; cp west.yaml $1 app/config`},
		{name: "moved away for another", script: `cp -r app/config new; cp $1 new/east.yaml; mv app/config old; mv new app/config`},
		{name: "the directory above removed and made anew", script: `cp -r app new; cp $1 new/config/east.yaml; rm -rf app; mkdir app; cp -r new/config app/config`},
		{name: "the directory above moved away for another", script: `cp -r app new; cp $1 new/config/east.yaml; mv app old; mv new app`},
		{name: "a link above that is swapped (git-sync)", before: `mv app v1; ln -s v1 app`, script: `cp -r v1 v2; cp $1 v2/config/east.yaml; ln -s v2 next; mv -T next app; rm -rf v1`},
		{name: "a link for the directory that is swapped", before: `mv app/config v1; ln -s ../v1 app/config`, script: `cp -r v1 v2; cp $1 v2/east.yaml; ln -s ../v2 next; mv -T next app/config`},
		{name: "a ConfigMap", before: `cd app/config; mkdir ..1; mv *.yaml ..1; ln -s ..1 ..data; ln -s ..data/east.yaml ..data/west.yaml .`,
			script: `cd app/config; cp -r ..1 ..2; cp $1 ..2/east.yaml; ln -s ..2 ..data_tmp; mv -T ..data_tmp ..data; rm -rf ..1`},
		{name: "git checkout", before: commit, script: `cd app/config; git checkout -q other`},
		{name: "git stash and pull", before: commit, script: `cd app/config; git clean -dfxq; git reset -q --hard other`},
		{name: "git clone anew", before: commit, script: `git clone -q -b other app/config new; rm -rf app/config; git clone -q new app/config`},
		{name: "rsync", script: `cp -r app/config new; cp $1 new/east.yaml; rsync -a --delete new/ app/config/`},
		{name: "rsync in place", script: `cp -r app/config new; cp $1 new/east.yaml; rsync -a --inplace --delete new/ app/config/`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			replaced(t, c.before, c.script, func(s *Store) { s.scanShare, s.patience = 1e9, time.Minute }) // a script may stand still
		})
	}
}

// commit makes the directory a repository, with the new east.yaml in the branch other.
const commit = `cd app/config; git init -q -b main; git add .; git -c user.name=a -c user.email=a@b commit -qm a
git checkout -q -b other; cp $1 east.yaml; git -c user.name=a -c user.email=a@b commit -qam b; git checkout -q main`

// TestWhatNoEventTellsOf is a table of changes that happen outside of the directory.
func TestWhatNoEventTellsOf(t *testing.T) {
	for _, c := range []struct{ name, before, script string }{
		{"a link to a file that is written (stow)", `mv app/config/east.yaml .; ln -s ../../east.yaml app/config`, `cat $1 > east.yaml`},
		{"a link to a file that is replaced", `mv app/config/east.yaml .; ln -s ../../east.yaml app/config`, `cp $1 x; mv x east.yaml`},
		{"links into a directory that is swapped", `mkdir v1; mv app/config/* v1; ln -s v1 v; ln -s ../../v/east.yaml ../../v/west.yaml app/config`,
			`cp -r v1 v2; cp $1 v2/east.yaml; ln -s v2 next; mv -T next v`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			replaced(t, c.before, c.script, func(*Store) {})
		})
	}
}

func replaced(t *testing.T, before, script string, set func(*Store)) {
	top, next := t.TempDir(), t.TempDir()
	d := &directory{t: t, path: filepath.Join(top, "app/config")}
	d.must(os.MkdirAll(d.path, 0o755))
	d.write("east.yaml", clusterText("east", "a"))
	d.write("west.yaml", clusterText("west", "a"))
	d.must(os.WriteFile(filepath.Join(next, "east.yaml"), []byte(clusterText("east", "b")), 0o644))
	shell := func(script string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script, "sh", filepath.Join(next, "east.yaml"))
		cmd.Dir, cmd.Env = top, append(os.Environ(), "W="+clusterText("west", "a"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	for _, program := range []string{"git", "rsync"} {
		if _, err := exec.LookPath(program); err != nil && strings.Contains(before+script, program+" ") {
			t.Skip(err)
		}
	}
	shell(before)
	d.store = open(t, d.path)
	set(d.store)
	d.Follower = storetest.Follow(t, d.store)
	d.await("east=a west=a")
	began := time.Now()
	shell(script)
	shown := time.Now()
	d.await("east=b west=a")
	t.Logf("it took %s, and was seen after another %s", shown.Sub(began).Round(time.Millisecond), time.Since(shown).Round(time.Millisecond))
	d.write("north.yaml", clusterText("north", "a"))
	d.await("east=b north=a west=a")
	for _, c := range d.All() {
		if len(c.Deleted) > 0 {
			t.Errorf("%v was taken away meanwhile", c.Deleted)
		}
	}
}
