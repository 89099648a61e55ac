// A folder that lives as long as the object, for the workers' error files.
#pragma once

#include <string>

namespace launcher {

class TemporaryFolder {
 public:
  // Made in TMPDIR or /tmp. Throws LaunchError when that is impossible.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace launcher
