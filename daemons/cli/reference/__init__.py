"""The reference of files and commands, in every form that it is read in: made from the classes that read the files and
from the commands themselves."""
