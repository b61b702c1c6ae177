import sys

from local_tracker.agent.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
