// The ddprun that another one starts on a host: it says who it is, reaches further hosts for it, and runs this host's
// part of the job. When its channel ends, everything that it started does.
#pragma once

namespace launcher::remote {

// The channel is standard input and output. Returns the exit status. Throws LaunchError when it cannot begin.
int run_agent();

}  // namespace launcher::remote
