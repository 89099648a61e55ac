# The addresses of the repository, of the issue tracker and for reports of security problems. No other file names them: CMake, scripts/package and
# docs/site/conf.py read them here. They are placeholders until the first release.
set(DDPRUN_REPOSITORY "https://example.org/ddprun")
set(DDPRUN_ISSUES "https://example.org/ddprun/issues")
set(DDPRUN_SECURITY "security@example.org")
set(DDPRUN_AUTHORS "the ddprun authors <ddprun@example.org>")
