// A folder for the workers' error files, which exists as long as the object. Its name is chosen before it is made:
// every process with a copy of the object removes the folder, whichever of them is killed before.
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

  // Makes the folder. Throws LaunchError when that is impossible.
  void make() const;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace launcher
