package embedded

func child() bool { return false }
