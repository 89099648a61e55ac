// A folder that lives as long as the object, for the workers' error files. Its name is chosen before it is made: every
// process that has the object removes the folder, whichever of them is killed in between.
#pragma once

#include <string>

namespace launcher {

class TemporaryFolder {
 public:
  // Chooses an unused name in TMPDIR or /tmp.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  // Throws LaunchError when it cannot be made.
  void make() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace launcher
