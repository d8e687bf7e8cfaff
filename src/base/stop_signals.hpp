// Signals that ask a run to stop: SIGUSR1, SIGTERM and SIGINT. The handler only notes that one has come; who runs steps
// looks at it between two of them.
#pragma once

namespace metro {

// From now on the first signal of each kind is noted, and a second one of that kind does what it does by default.
// A signal that the process was started to ignore stays ignored.
void catch_stop_signals();

// Whether one has come.
bool stop_is_requested();

// Whether SIGTERM or SIGINT has come and nobody has answered it. A launcher also sends SIGTERM to the ranks that are
// left when one has failed: they wait for it in vain, and must not take the signal for a wish to stop.
bool termination_is_unanswered();

// All ranks have agreed to stop: whoever waits from now on waits for ranks that are alive.
void answer_stop_signals();

}  // namespace metro
