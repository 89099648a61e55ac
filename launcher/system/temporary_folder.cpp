#include "launcher/system/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "launcher/system/launch_error.h"

namespace launcher {

TemporaryFolder::TemporaryFolder() {
  const char* parent = std::getenv("TMPDIR");
  path_ = std::string(parent != nullptr && *parent != '\0' ? parent : "/tmp") + "/ddprun_XXXXXX";
  path_ = std::filesystem::absolute(path_);  // the ranks may be in another folder when they write
  if (::mkdtemp(path_.data()) == nullptr) {
    throw LaunchError("cannot make a folder for error files as " + path_ + ": " + std::strerror(errno) +
                      " (TMPDIR names another place)");
  }
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // a worker may have put things there that cannot be removed
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace launcher
