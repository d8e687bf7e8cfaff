// The end of the whole job, now.
#pragma once

namespace metro {

// Ends all ranks with this exit code, and this process in any case. Usable at any time, also before and after MPI's
// life. Says nothing itself.
[[noreturn]] void abort_job(int exit_code);

}  // namespace metro
