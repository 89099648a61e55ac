#include "launcher/os/system/temporary_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {

TemporaryFolder::TemporaryFolder() {
  const char* parent = std::getenv("TMPDIR");
  path_ = std::string(parent != nullptr && *parent != '\0' ? parent : "/tmp") + "/ddprun_" + random_id();
  path_ = std::filesystem::absolute(path_).string();  // the ranks may have another working folder when they write
}

void TemporaryFolder::make() const {
  if (::mkdir(path_.c_str(), 0700) != 0) {
    throw LaunchError("cannot create the folder " + path_ + " for error files: " + std::strerror(errno) +
                      "; set TMPDIR to a folder in which you can write");
  }
}

TemporaryFolder::~TemporaryFolder() {
  if (::rmdir(path_.c_str()) == 0 || errno == ENOENT) return;  // usually it is empty
  std::error_code ignored;  // a worker may have put files there that cannot be removed
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace launcher
