// Whether a crash leaves a core dump. The memory of a rank holds prompts and completions, and a dump may land where
// others can read it.
#pragma once

#include <sys/resource.h>

namespace metro {

class CoreDumps {
 public:
  // Turns them off for this process and those it starts. Throws Error(machine) if the system refuses.
  CoreDumps();

  // Puts the limit back to what it was.
  void allow() const;

 private:
  rlimit at_start_{};
};

}  // namespace metro
